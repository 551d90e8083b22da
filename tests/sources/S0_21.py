for dist_inputs in dist_dataset:
  print(distributed_train_step(dist_inputs))
