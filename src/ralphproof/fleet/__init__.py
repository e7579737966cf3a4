"""Many loops on many machines: who may spend, who works where, and how a turn is carried out there."""
