"""Every limit of taskgraph, with its unit and its reason; each is checked where data enters.

Limits of the stores are those of Azure Table and Queue Storage; the embedded store keeps the same ones.
"""

from typing import Final

# --- the store -------------------------------------------------------------------------------------------------
COMMIT_CHANGES_MAX: Final = 100  # rows in one entity group transaction
WHOLE_ROWS_MAX: Final = COMMIT_CHANGES_MAX  # of a graph that is submitted and started in one commit, with its event row
LOCAL_COMMIT_CHANGES_MAX: Final = 400  # rows in one commit of the embedded store
COMMIT_BYTES_MAX: Final = 3_500_000  # the service refuses 4 MiB; the rest is the envelope around each row
PROPERTY_CHARS_MAX: Final = 32_000  # UTF-16 units; the service takes 32 Ki
ROW_CHARS_MAX: Final = 500_000  # UTF-16 units over all properties; the service takes 1 MiB = 524,288
ROW_COLUMNS_MAX: Final = 250
KEY_CHARS_MAX: Final = 512  # the emulator's bound; the service takes 1,024
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
PAGE_ROWS_MAX: Final = 1_000
MESSAGE_BYTES_MAX: Final = 48 * 1024  # of plain JSON: 64 KiB once base64 has been put around it
RECEIVE_MAX: Final = 32
EVENT_QUEUES_MAX: Final = 32  # among which the graphs of a store may be shared out
DELAY_SECONDS_MAX: Final = 7 * 24 * 3600

# --- names -----------------------------------------------------------------------------------------------------
GRAPH_ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
GRAPH_ID_CHARS_MAX: Final = 64
TARGET_PATTERN: Final = r"^[a-z0-9](?:-?[a-z0-9]){0,39}$"  # the queue name taskgraph-work-<target> must be legal
HOST_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"  # one label of a domain name has 63, and few hosts more
WORKER_LABEL_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,62}$"
WORKER_LABELS_MAX: Final = 16  # of a worker, and that a task may ask for
LABEL_CHARS_MAX: Final = 255
ROUTING_CHARS_MAX: Final = 10
ROUTING_KEY_CHARS_MAX: Final = 2 * ROUTING_CHARS_MAX + 1  # of a graph's routing and a task's with a dot between

# --- documents -------------------------------------------------------------------------------------------------
DOCUMENT_DEPTH_MAX: Final = 64  # nested arrays and objects
YAML_ALIASED_CHARS_MAX: Final = 16_000_000  # that aliases may add to a text, 16 for each value beside its own
GROUPS_OF_TASK_MAX: Final = 16  # groups that a task is in, nested ones counted: its row names them
PLANNED_PAIRS_MAX: Final = 10_000_000  # requirements from task to task that a plan lists, where groups stand for them
RERUNS_MAX: Final = 999
CHANNELS_MAX: Final = 20  # different channels of a graph's notices: each has a row, and reads the journal by itself
INLINE_DEFINITION_CHARS_MAX: Final = 4_000  # a longer task definition gets a row of its own
DEFINITION_CHARS_MAX: Final = 450_000  # UTF-16 units of one task's JSON
PARAMS_MAX: Final = 100  # parameters of one graph
PARAMS_CHARS_MAX: Final = 8_000  # UTF-16 units of their values as JSON: every read of the graph row brings them along
OUTPUT_CHARS_MAX: Final = 4_000  # UTF-16 units of an output as JSON: a message holds one, and a commit a hundred
NAME_MAPPING_CHARS_MAX: Final = 16_000  # of the graph row's own nameMapping; the rest is spread over rows

# --- degree (D5) -----------------------------------------------------------------------------------------------
REQUIRES_MAX: Final = 96  # requirements on one row; wider fan-in passes through joins
DEPENDENTS_MAX: Final = 90  # dependents on one row; wider fan-out passes through forks
LINK_REFERENCES_MAX: Final = 80  # dependents registered at a row at once; with a fork they are within its degree
DEFERRED_MAX: Final = 200  # extensions that wait for a paused graph to be resumed, named on its row
GRAPH_REQUIRES_MAX: Final = 64  # on the graph row: leaves room for folding them into one join in a single commit

# --- behaviour -------------------------------------------------------------------------------------------------
LEASE_SECONDS: Final = 60.0  # a worker's claim, renewed at a third
GRACE_SECONDS: Final = 10.0  # between SIGTERM and SIGKILL, when a command is cancelled, handed back or out of time
HANDLER_LEASE_SECONDS: Final = 60.0  # visibility of a message while a handler has it
CLAIM_LEASE_SECONDS_MIN: Final = 5.0  # of a worker over HTTP, which asks for a length with each claim
CLAIM_LEASE_SECONDS_MAX: Final = 6 * 3600.0
LOG_BYTES_MAX: Final = 64 * 1024 * 1024  # of what a worker over HTTP may upload for one run
CLAIM_TASKS_MAX: Final = 100  # in one answer to a worker over HTTP, and runs that it reports at once
RETRIES_DEFAULT: Final = 5  # runs that may be lost to infrastructure
TEMPORARY_LIMIT_DEFAULT: Final = 10  # temporary failures of a task; with the delays below, half an hour of trying
TEMPORARY_DELAY_SECONDS_DEFAULT: Final = 1.0  # before the first try; doubled before each further one
TEMPORARY_DELAY_SECONDS_MAX_DEFAULT: Final = 300.0
TEMPORARY_LIMIT_MAX: Final = 1_000
EXIT_CODES_MAX: Final = 32  # named as temporary by one task
TIME_LIMIT_SECONDS_MAX: Final = 366 * 24 * 3600  # of one run, and of the time that a task may stand pending
COMMIT_ATTEMPTS_MAX: Final = 50  # conflicts in a row before the message is released
POISON_FAILURES_MAX: Final = 5  # recorded failures of handling one message
POISON_DELIVERIES_MAX: Final = 100  # deliveries that ended with neither an answer nor a recorded failure
REDISPATCH_SECONDS: Final = 60.0  # a task pending and unclaimed for so long is sent again
SWEEP_SECONDS: Final = 30.0
CLOCK_SLACK_SECONDS: Final = 10.0  # by which clocks may differ before a time that another one wrote is not believed
CLOCK_GAP_SECONDS: Final = 16 * 3600.0  # between two looks of a process that keeps house: a night; more is a leap
CLOCK_SETTLED_SECONDS: Final = 24 * 3600.0  # a clock that has gone on so long may end what is old
END_NOTICED_SECONDS: Final = 90.0  # within which sweeps notice that something is over, those of a function app too
WORKER_SEEN_SECONDS: Final = 30.0  # between two writes of a worker's row in the registry
WORKER_QUIET_SECONDS: Final = 600.0  # a worker that has had nothing in hand for so long writes half as often
HANDLER_SEEN_SECONDS: Final = 90.0  # between two writes of a handler's row, by which nothing is asked of it
WORKER_GONE_WORDS: Final = 3  # so many words that a worker owes: it is shown as gone
WORKER_GONE_SLACK_SECONDS: Final = 10.0  # beyond these, for clocks that differ
WORKER_FORGOTTEN_SECONDS: Final = 3600.0  # the row of a worker that is gone is kept for so long, for people
ABANDONED_SECONDS: Final = 24 * 3600.0  # a submission that has not started for so long never will
RUNS_KEPT_MAX: Final = 20  # earlier runs listed on a task row; the event rows hold all
BUNDLE_TASKS_MAX: Final = 32  # tasks in one message that every version reads
LARGE_BUNDLE_TASKS_MAX: Final = 96  # tasks in one work or result message of version 2: as many as one commit claims
CACHED_ROWS_MAX: Final = 120_000  # rows that a process remembers over all graphs: 240 MB
KEPT_ROW_BYTES: Final = 2_000  # about what such a row takes in memory
ROW_CACHE_MB_MIN: Final = 1
ROW_CACHE_MB_MAX: Final = 100_000
ROW_CACHE_MB_OF_FUNCTIONS: Final = 64  # an instance of the smallest plan has 512 MB for all that it does
READ_ALONE_MAX: Final = 6  # so many rows are read one by one, whatever lies beside them
READ_PAGE_WORTH: Final = 8  # keys for which a page of up to 1,000 rows is read instead of each alone
GATE_SECONDS: Final = 5.0  # for which a worker goes by what it has read of paused targets
WINDOW_START: Final = 128  # ready tasks that a process sends to a queue of workers before it knows of any worker
WINDOW_MIN: Final = 32  # of one graph; fewer would have workers wait for messages
WINDOW_MAX: Final = 4_096  # in one queue, however quickly they are run
UNSENT_MAX: Final = 200_000  # ready tasks that a process remembers to send later; about 100 bytes each
LEVEL_SECONDS: Final = 3600.0  # after which a level is not asked for work any more to which nothing was sent
AGE_SECONDS: Final = 300.0  # a task that has stood ready for so long counts one level higher, and so on
NOTICE_PAUSE_SECONDS_MAX: Final = 300.0  # between two attempts at a channel that takes nothing
NOTICE_LEASE_SECONDS: Final = 120.0  # for which one process sends to a channel
NOTICE_GIVE_UP_SECONDS: Final = 3 * 24 * 3600.0  # a channel that has taken nothing for so long is given up
WORKERS_LOST_MAX: Final = 3  # workers that were lost with a task in hand: then it is taken for the cause
WORKERS_LOST_BOUND: Final = 20  # a task may ask for so many at most: no more runs are listed on its row
STALLED_SECONDS: Final = 3600.0  # a graph of which nothing has moved for so long is marked as stalled
STALLED_SECONDS_MIN: Final = 60.0  # what is ready is said again after so long; a mark before that would be idle talk
STALLED_SECONDS_MAX: Final = 365 * 24 * 3600.0
REASON_CHARS_MAX: Final = 1_000
BY_CHARS_MAX: Final = 100  # of who asks for something
TOKEN_CHARS_MAX: Final = 128  # of what opens the HTTP API
TOKEN_GRAPHS_MAX: Final = 20  # patterns of the graphs that one is for
TOKEN_DAYS_MAX: Final = 3_660
SHARE_HOURS_MAX: Final = 720  # of what opens one graph for reading: none outlives a tombstone, and opens another
TOKEN_RUNS_MAX: Final = 1_000  # that workers over HTTP have in hand by one token, unless `serve` says otherwise
FOLDER_CHARS_MAX: Final = 1_024  # of a submitter; a longer path is not kept
IN_FLIGHT_MAX: Final = 1_000  # tasks in flight under one limit: all of them are listed in one column
LIMITS_OF_TASK_MAX: Final = 4  # limits that a task is under: their rows go into the commits of its runs
LIMITED_GROUPS_MAX: Final = 100  # groups of a graph that have a limit: the graph row names them
COUNTED_TASKS_MAX: Final = 2_000  # a graph of more tasks is not counted task by task for its status
COUNTED_PAGES_MAX: Final = 8  # pages of tasks under way that a look at such a graph reads
TOMBSTONE_SECONDS: Final = 30 * 24 * 3600.0  # an id is not given again for so long after its graph was deleted
KEEP_SECONDS: Final = 600.0  # between two looks for graphs, and for tombstones, whose time is over
KEEP_GRAPHS_MAX: Final = 100  # that are looked at, and deleted, in one such look

# --- archives that are put back --------------------------------------------------------------------------------
ARCHIVE_ROWS_MAX: Final = 500_000  # about 2 KB of memory each while they are judged; --max-rows allows more
ARCHIVE_BYTES_MAX: Final = 1 << 30  # what a file unpacks to; --max-bytes allows more
ARCHIVE_RATIO_MAX: Final = 100  # times that a file may grow; rows grow tenfold, what repeats itself a thousandfold
ARCHIVE_RATIO_FREE_BYTES: Final = 16 * 1024 * 1024  # unpacked, before the ratio counts
ARCHIVE_LINE_BYTES_MAX: Final = 8 * 1024 * 1024  # the longest row, with every character spelt out, is half of that
ARCHIVE_PIECE_BYTES: Final = 1 << 20  # of a log, in one line
ARCHIVE_ROOM_BYTES: Final = 64 * 1024 * 1024  # that stay free on the disk of an embedded store
AMOUNT_MAX: Final = 1_000_000_000_000  # of money: a budget is less
RUN_NUMBER_MAX: Final = 1_000_000  # a task that was run more often was never run by taskgraph

# --- schedules -------------------------------------------------------------------------------------------------
SCHEDULE_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$"  # with a time behind it, it is a graph id
SCHEDULE_CRON_CHARS_MAX: Final = 100
SCHEDULE_EVERY_SECONDS_MIN: Final = 1
SCHEDULE_EVERY_SECONDS_MAX: Final = 366 * 24 * 3600
SCHEDULE_DOCUMENT_CHARS_MAX: Final = 1_000_000  # UTF-16 units: it is replaced in one commit, whole
SCHEDULE_LOOK_SECONDS: Final = 60.0  # between two looks at the schedules, while none is due sooner
SCHEDULE_LATE_SECONDS: Final = 300.0  # a fire that comes up later than this was missed: catch-up decides
SCHEDULE_FIRES_MAX: Final = 10  # fires of one schedule in one look
SCHEDULE_WAITING_MAX: Final = 100  # fires that may wait for the one before; they stand on one row
SCHEDULE_RUNS_KEPT_MAX: Final = 10  # earlier fires that the row lists
SCHEDULE_RETRY_SECONDS_MAX: Final = 3600.0  # between two tries of a fire that cannot be submitted
