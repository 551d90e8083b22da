strategy.reduce("sum", per_replica_result, axis=0)
