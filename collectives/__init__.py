"""(Nothing here yet.)"""
