"""What the experiments of several labs share: networks that fit in minutes, what they learn, how well they do."""
