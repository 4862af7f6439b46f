"""The commands of ``mainstem``, one module per noun."""
