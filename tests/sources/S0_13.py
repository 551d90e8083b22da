strategy = tf.distribute.OneDeviceStrategy(device="/gpu:0")
