import re
d={}
for i in range(3000):
    k="k%d"%(i*7919%1009); d[k]=d.get(k,0)+i*0.5
print(sum(d.values()), re.sub(r"(a+)b", r"\1c", "aab"*1000)[:10])
