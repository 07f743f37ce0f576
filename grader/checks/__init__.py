"""The checks, one file per stage; they run in the trusted process only."""
