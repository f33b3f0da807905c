"""What a measured rate costs. Prices are copied in with their source and date; results say how they are derived."""
