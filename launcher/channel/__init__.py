"""Talk with a running agent over its pipes or its socket."""
