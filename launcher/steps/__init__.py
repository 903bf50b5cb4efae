"""What each arrow of a launch does, from the request to the session's record."""
