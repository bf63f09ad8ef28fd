"""What an installer's command would do to torch and its family, before it does it; and pins that prevent it."""


# Carrying out the least remedy of an environment, and putting back what was there before.
