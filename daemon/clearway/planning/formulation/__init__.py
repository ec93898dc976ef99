"""The eviction problem in whole steps and units: what every planner works on."""
