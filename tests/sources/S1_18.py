strategy.reduce("sum", per_replica_result, axis=None)
