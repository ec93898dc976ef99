"""The dynamic program over nodes and time, and the walk that settles its ties."""
