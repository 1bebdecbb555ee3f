"""Trained models as graphs that run without seqkit: torch.export and ONNX."""
