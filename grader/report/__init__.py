"""What a grading says: results.json (`results`) and the reports that are functions of it (`terminal`)."""
