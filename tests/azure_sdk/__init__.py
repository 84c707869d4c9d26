"""The cloud store through Microsoft's SDK: the reference that the product's own requests are held against."""

from azure.data.tables.aio import TableClient
from azure.storage.queue.aio import QueueClient

from taskgraph.model.clock import Clock
from taskgraph.storage import checks
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.azure.pool import Transport
from taskgraph.storage.azure.queues import AzureQueues
from taskgraph.storage.azure.tables import AzureTables
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables
from tests.azure_sdk.queues import SdkQueueCalls
from tests.azure_sdk.tables import SdkTableCalls


class SdkStore(AzureStore):
    """Requests to tables are signed by the machine's clock here, whatever the service's says."""

    def tables(self, name: str) -> Tables:
        """The table of this name. Raises ValueError for a name that the cloud would refuse."""
        checks.check_table_name(name)
        end, options = self._account.table, self._options.copy()
        del options["raw_request_hook"]
        return AzureTables(self._caller(end), SdkTableCalls(lambda: TableClient(end, name, **options)), name)

    def queues(self) -> Queues:
        """All queues."""
        end, options = self._account.queue, self._options
        calls = SdkQueueCalls(lambda name: QueueClient(end, name, **options))
        return AzureQueues(self._caller(end), calls)


def open_store(text: str, clock: Clock, *, thin: bool = True, transport: Transport | None = None) -> AzureStore:
    """The store of a connection string. thin: with the product's own requests."""
    return (AzureStore if thin else SdkStore).from_connection_string(text, clock, transport=transport)
