"""Trained runs over HTTP: `seqkit serve`. LitServe keeps the process of the models; FastAPI answers requests."""
