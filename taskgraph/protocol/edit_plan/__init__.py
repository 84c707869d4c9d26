"""What an edit comes to: who is meant, which edges and definitions become others, and what that writes."""
