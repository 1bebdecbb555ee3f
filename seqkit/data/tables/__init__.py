"""Tables of the user's own: files of rows, which columns are input and target, and the rows that can be used."""
