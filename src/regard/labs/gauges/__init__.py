"""What labs count and time: dependent operations, products, memory and seconds."""
