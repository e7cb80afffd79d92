"""Out to other tools and back: doubtful rows go out, and what people say there comes back."""
