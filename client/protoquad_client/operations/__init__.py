"""Every operation of the service as a function that builds its request. Pure: nothing is sent here."""
