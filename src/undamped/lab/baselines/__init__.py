"""What a person would otherwise pick for recordings: models of other libraries, and a guess."""
