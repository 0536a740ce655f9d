"""`doctor`: what keeps this machine from following, keeping and serving, and how to mend it."""
