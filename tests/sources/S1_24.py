scope()
