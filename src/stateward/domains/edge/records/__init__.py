"""Pure decisions about records: instances, reports and agent upgrades. The explorer checks these functions."""
