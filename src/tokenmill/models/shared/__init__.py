"""What the model types have in common; model types themselves are the modules one level up."""
