"""The methods: one folder a family, one file a method; what methods of a family share lies in its folder `shared`."""
