if tf.config.list_physical_devices('gpu'):
  strategy = tf.distribute.MirroredStrategy()
else:  # use default strategy
  strategy = tf.distribute.get_strategy()

with strategy.scope():
  # do something interesting
  print(tf.Variable(1.))
