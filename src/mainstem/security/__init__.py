"""Who is there, what they may do, how much of it: authentication, rules, quotas, audit."""
