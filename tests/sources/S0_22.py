iterator = iter(dist_dataset)
for _ in range(10):
  print(distributed_train_step(next(iterator)))
