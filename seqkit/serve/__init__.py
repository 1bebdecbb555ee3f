"""A trained run over HTTP: `seqkit serve`. LitServe has the processes, the queue, the batches and the routes."""
