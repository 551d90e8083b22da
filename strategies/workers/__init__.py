"""Workers: how they find each other, what they do together, and the job that they are of."""
