"""Long texts: documents in files, their ids on disk, and windows of a stream."""
