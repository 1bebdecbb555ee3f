"""The debugging checklist as measurements of one model and its data: `seqkit doctor RECIPE|RUN`."""
