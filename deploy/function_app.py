"""The function app: which function takes what from where. What they do is in `taskgraph.functions`.

Python programming model v2: the host reads this file to learn of the functions, so names and schedules are made here,
when it is loaded, from the app's settings. Nothing is opened before the first call.
"""

import os

import azure.functions as func

from taskgraph.functions import Door, Trigger

door = Door(os.environ)
bindings = door.bindings
app = (
    func.AsgiFunctionApp(door.asgi, http_auth_level=bindings.http_level, function_name="http")
    if bindings.http
    else func.FunctionApp()
)


def handle(trigger: Trigger) -> None:
    """A function that handles the events of one queue."""

    @app.function_name(trigger.function)
    @app.queue_trigger(arg_name="message", queue_name=trigger.queue, connection=bindings.connection)
    async def handle_event(message: func.QueueMessage) -> None:
        await door.handle(trigger.queue, message.id, message.get_body(), message.dequeue_count)


def set_aside(trigger: Trigger) -> None:
    """A function that writes down what the host has given up."""

    @app.function_name(trigger.function)
    @app.queue_trigger(arg_name="message", queue_name=trigger.queue, connection=bindings.connection)
    async def set_message_aside(message: func.QueueMessage) -> None:
        await door.set_aside(trigger.queue, message.id, message.get_body(), message.dequeue_count)


for each in bindings.events:
    handle(each)
for each in bindings.poison:
    set_aside(each)


@app.function_name("sweep")
@app.timer_trigger(arg_name="timer", schedule=bindings.schedule)
async def sweep(timer: func.TimerRequest) -> None:
    """The periodic repair. The host runs one at a time over all instances."""
    await door.sweep()
