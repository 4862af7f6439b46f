SCENARIOS: dict = {}
