"""Analysis of a model: attention maps, parameters, FLOPs, memory."""
