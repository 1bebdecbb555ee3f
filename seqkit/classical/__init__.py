"""Classical methods for every kind of data, and the choice of the best one inside training."""
