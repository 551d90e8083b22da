run(
    fn, args=(), kwargs=None, options=None
)
