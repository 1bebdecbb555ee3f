"""Pictures, tables and pages: reports of runs, attention maps, learning curves; one renderer per modality."""
