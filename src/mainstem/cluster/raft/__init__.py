"""Raft (Ongaro and Ousterhout, 2014) for the catalogue, in the shape of etcd's library.

``core`` decides and returns ``Ready`` values; ``driver`` makes them durable, sends and applies.
Names of messages and states are etcd's.
"""
