"""No training begins with a model that breaks a law: a few short examples of its own data go through it first."""
