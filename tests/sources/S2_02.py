import tensorflow_datasets as tfds
import tensorflow as tf

import os, json
