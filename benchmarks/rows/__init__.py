"""The rows of `request_batching`: each function measures one line or a few of the table."""
