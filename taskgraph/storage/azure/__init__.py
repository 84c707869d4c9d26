"""Azure Table, Queue and Blob Storage behind the ports."""
